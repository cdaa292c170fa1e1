//! A health check returns whether it has passed.

use std::time::Duration;

use filoplume::prelude::*;

fn main() {
    let health = Health::new().check("disk", Duration::from_secs(1), || true);
    let _ = App::new().health(health);
}
