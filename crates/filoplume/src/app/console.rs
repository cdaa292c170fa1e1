//! The console of an app.

use std::sync::Arc;

use super::App;
use crate::console::Console;
use crate::observe::Observer;
use crate::routing::Router;

/// A console that is served on an address of its own.
pub(crate) struct OwnConsole {
    pub(crate) address: String,
    /// Where the page is at that address.
    pub(crate) prefix: String,
    pub(crate) app: App,
}

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
        match console.address.take() {
            None => app.router = app.router.merge(console.into_router(prefix, observer)),
            Some(address) => app.add_own_console(address, prefix, console, observer),
        }
        app
    }

    #[track_caller]
    fn add_own_console(
        &mut self,
        address: String,
        prefix: &str,
        console: Console,
        observer: Arc<Observer>,
    ) {
        let router: Router = console.into_router(prefix, observer);
        let app = Self::new().merge(router);
        if let Some(first) = &self.console {
            self.router.mistakes.push(format!(
                "there are two consoles with an address of their own, {} and {address}: leave one \
                 out",
                first.address
            ));
            return;
        }
        let prefix = prefix.to_owned();
        self.console = Some(Box::new(OwnConsole { address, prefix, app }));
    }
}
