use filoplume::prelude::*;

fn log(request: Request) -> Result<Response> {
    println!("{}", request.path());
    Ok(Response::default())
}

fn main() {
    let _ = App::new().with(log);
}
