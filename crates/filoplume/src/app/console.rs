//! The console of an app.

use super::App;
use super::beside::Part;
use crate::console::Console;

impl App {
    /// Adds a page that shows what the app does at this moment: [`Console`] describes it, and says
    /// who may see it. The page is at `prefix`, such as `/console`, and has parts below it. The app
    /// counts and measures its requests from then on, as with [`metrics`](Self::metrics).
    ///
    /// `prefix/events` is the feed of the page, for other programs: an event stream with an event
    /// `snapshot` per second, whose data is JSON. The guide lists its members.
    ///
    /// ```
    /// use filoplume::Console;
    /// use filoplume::prelude::*;
    ///
    /// let app = App::new()
    ///     .get("/", || "hi")
    ///     .console("/console", Console::with_password("admin", "sesame"));
    /// app.test().get("/console/events").send().assert_status(401);
    /// ```
    #[track_caller]
    pub fn console(self, prefix: &str, mut console: Console) -> Self {
        let (mut app, observer) = self.observed();
        app.router.mistakes.extend(console.mistake.take());
        if prefix.contains('{') {
            app.router.mistakes.push(format!(
                "the console cannot be at \"{prefix}\": its prefix has no captures, such as \
                 \"/console\""
            ));
        }
        let address = console.address.take();
        let routes = console.into_router(prefix, observer);
        match address {
            None => app.router = app.router.merge(routes),
            Some(address) => app.add_beside(address, Part::Console, prefix, routes),
        }
        app
    }
}
