use std::rc::Rc;

use filoplume::prelude::*;

fn main() {
    let name = Rc::new("Ada".to_owned());
    let _ = App::new().with(move |request: Request, next: Next| {
        println!("{name}");
        next.run(request)
    });
}
