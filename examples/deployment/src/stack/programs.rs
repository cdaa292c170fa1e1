//! The command lines of the programs, and how each shows that it is ready.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

use filoplume::{Error, Result};

use super::process::{Owner, Process, postgres_folder};
use super::{Addresses, NAMES, Options, config, exchange, wait_for};

pub(super) fn start_postgres(folder: &Path, address: SocketAddr) -> Result<Process> {
    let programs = postgres_folder().ok_or_else(|| Error::not_found("PostgreSQL is missing"))?;
    let (data, owner) = (folder.join("postgres"), Owner::of_postgres());
    if !data.join("PG_VERSION").exists() {
        fs::create_dir_all(&data)?;
        if let Owner::Other { user, group } = owner {
            chown(&data, Some(user), Some(group))?;
        }
        let mut initdb = owner.command(programs.join("initdb"));
        initdb.args(["--auth=trust", "--username=app", "--encoding=UTF8", "--no-locale"]);
        let output = initdb.arg("--pgdata").arg(&data).output()?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Error::internal(format!("initdb failed: {text}")));
        }
    }
    let mut command = owner.command(programs.join("postgres"));
    command.arg("-D").arg(&data).arg("-p").arg(address.port().to_string());
    command.args(["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]);
    // `%a` is the name of a transaction, with its trace. Values of slow statements are not logged.
    command.args(["-c", "log_line_prefix=%m [%p] %a ", "-c", "log_min_duration_statement=100ms"]);
    command.args(["-c", "log_parameter_max_length=0"]);
    // At SIGINT it closes its connections. At SIGTERM it would wait for its clients.
    let mut process = Process::start("postgres", "INT", &mut command, folder)?;
    let ready = || {
        let arguments = ["-q", "-h", "127.0.0.1", "-p"];
        let mut command = Command::new(programs.join("pg_isready"));
        command.args(arguments).arg(address.port().to_string());
        command.status().is_ok_and(|status| status.success())
    };
    wait_for("postgres", folder, Some(&mut process), ready)?;
    Ok(process)
}

pub(super) fn start_redis(folder: &Path, address: SocketAddr) -> Result<Process> {
    let data = folder.join("redis");
    fs::create_dir_all(&data)?;
    let mut command = Owner::Same.command("redis-server");
    command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string()]);
    // Sessions survive a restart of Redis.
    command.args(["--save", "", "--appendonly", "yes", "--dir"]).arg(&data);
    let mut process = Process::start("redis", "TERM", &mut command, folder)?;
    wait_for("redis", folder, Some(&mut process), || {
        exchange(address, "PING\r\nQUIT\r\n").is_some_and(|answer| answer.starts_with("+PONG"))
    })?;
    Ok(process)
}

pub(super) fn instance(
    options: &Options,
    addresses: &Addresses,
    key: &str,
    index: usize,
) -> Result<Process> {
    let mut command = Owner::Same.command(&options.program);
    command
        .arg("serve")
        .arg(addresses.instances[index].to_string())
        .env("INSTANCE", NAMES[index])
        .env("CONSOLE", addresses.consoles[index].to_string())
        // The database shows which instance a connection belongs to.
        .env("PGAPPNAME", NAMES[index])
        .env("DATABASE_URL", config::database_url(addresses.postgres))
        .env("REDIS_URL", format!("redis://{}/", addresses.redis))
        .env("UPLOADS", options.folder.join("uploads"))
        .env("LAME_DUCK_MILLISECONDS", options.lame_duck.as_millis().to_string())
        .env("SECRET_KEY", key)
        .envs(options.environment.iter().map(|(name, value)| (name, value)));
    Process::start(NAMES[index], "TERM", &mut command, &options.folder)
}

pub(super) fn start_balancer(folder: &Path, addresses: &Addresses) -> Result<Process> {
    let file = folder.join("haproxy.cfg");
    fs::write(&file, config::haproxy(addresses.balancer, addresses.instances))?;
    let mut command = Owner::Same.command("haproxy");
    command.args(["-db", "-f"]).arg(file);
    Process::start("haproxy", "TERM", &mut command, folder)
}

/// Starts Prometheus, if it is installed.
pub(super) fn start_prometheus(folder: &Path, addresses: &Addresses) -> Result<Option<Process>> {
    if Command::new("prometheus").arg("--version").output().is_err() {
        return Ok(None);
    }
    let file = folder.join("prometheus.yml");
    fs::write(&file, config::prometheus(addresses.instances))?;
    let mut command = Owner::Same.command("prometheus");
    command
        .arg(format!("--config.file={}", file.display()))
        .arg(format!("--storage.tsdb.path={}", folder.join("prometheus").display()))
        .arg(format!("--web.listen-address={}", addresses.prometheus));
    Process::start("prometheus", "TERM", &mut command, folder).map(Some)
}
