//! The container file and the Kubernetes manifest, as far as they can be checked without either.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use deployment::stack::{LAME_DUCK, Stack};
use harness::{Client, beside_others};
use saphyr::{LoadableYamlNode as _, Yaml};

use super::traffic::{log_in, request, upload};
use super::{start, start_with};

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(file)).unwrap()
}

/// The user of the container, in all files.
const USER: u32 = 10001;

/// The drain takes at most so long.
const DRAIN_SECONDS: u64 = 10;

/// How long the migrations may take in all files: longer than the supervisors wait by default.
const START_SECONDS: i64 = 15 * 60;

#[test]
fn the_manifest_fits_the_program() {
    let _shared = beside_others();
    let text = read("kubernetes.yaml");
    let documents = Yaml::load_from_str(&text).unwrap();
    let kinds: Vec<_> = documents.iter().map(|each| each["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["Deployment", "Service", "PodDisruptionBudget"]);
    let [deployment, service, budget] = &documents[..] else { panic!("{kinds:?}") };
    let label = |yaml: &Yaml<'_>| yaml["app"].as_str().map(str::to_owned);
    let template = &deployment["spec"]["template"];
    for labels in [
        &deployment["spec"]["selector"]["matchLabels"],
        &service["spec"]["selector"],
        &budget["spec"]["selector"]["matchLabels"],
    ] {
        assert_eq!(label(labels), label(&template["metadata"]["labels"]));
    }
    let [container] = template["spec"]["containers"].as_vec().unwrap().as_slice() else {
        panic!("one container")
    };
    let port = &container["ports"][0];
    let number = port["containerPort"].as_integer().unwrap();
    assert_eq!(container["args"][0].as_str(), Some("serve"));
    assert_eq!(container["args"][1].as_str(), Some(&*format!("0.0.0.0:{number}")));
    let scraped = template["metadata"]["annotations"]["prometheus.io/port"].as_str();
    let metrics = container["ports"][1]["containerPort"].as_integer().unwrap();
    assert_ne!(metrics, number);
    assert_eq!(scraped, Some(&*metrics.to_string()));
    assert_eq!(service["spec"]["ports"][0]["targetPort"].as_str(), port["name"].as_str());

    let value = |name: &str| {
        let variables = container["env"].as_vec().unwrap();
        let found = variables.iter().find(|variable| variable["name"].as_str() == Some(name));
        found.unwrap_or_else(|| panic!("{name} is not set"))["value"].as_str()
    };
    let lame_duck: i64 = value("LAME_DUCK_MILLISECONDS").unwrap().parse().unwrap();
    let grace = template["spec"]["terminationGracePeriodSeconds"].as_integer().unwrap();
    let drain = i64::try_from(DRAIN_SECONDS).unwrap();
    assert!((grace - drain) * 1000 > lame_duck, "{grace} s after {lame_duck} ms");
    assert!(value("TRUSTED_PROXIES").is_some());
    assert_eq!(value("METRICS"), Some(&*format!("0.0.0.0:{metrics}")));
    assert!(value("CONSOLE").unwrap().starts_with("127.0.0.1:"), "the console has no password");
    assert_eq!(value("UPLOADS"), container["volumeMounts"][0]["mountPath"].as_str());
    let user = template["spec"]["securityContext"]["runAsUser"].as_integer();
    assert_eq!(user, Some(i64::from(USER)));

    // Every probe asks for a path that exists, and readiness fails within the lame-duck time.
    let Some((_folder, stack)) = start(LAME_DUCK) else { return };
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        let get = &container[probe]["httpGet"];
        assert_eq!(get["port"].as_str(), port["name"].as_str(), "{probe}");
        let path = get["path"].as_str().unwrap();
        assert_eq!(Client::connect(stack.instance(0)).get(path).status, 200, "{probe}: {path}");
        assert_eq!(container[probe]["failureThreshold"].as_integer().map(|n| n > 0), Some(true));
    }
    let seconds = |probe: &str, name: &str| container[probe][name].as_integer().unwrap();
    let fails_after = |probe| seconds(probe, "periodSeconds") * seconds(probe, "failureThreshold");
    let notices = fails_after("readinessProbe");
    assert!(notices * 1000 < lame_duck, "{notices} s");
    assert!(seconds("readinessProbe", "timeoutSeconds") >= 1);
    assert_eq!(fails_after("startupProbe"), START_SECONDS);
    let progress = deployment["spec"]["progressDeadlineSeconds"].as_integer();
    assert!(progress > Some(START_SECONDS), "a rollout with a long migration has not failed");
}

#[test]
fn the_container_file_has_one_program_and_a_user_that_is_not_root() {
    let text = read("Containerfile");
    let (_, image) = text.split_once("\nFROM scratch\n").expect("the last stage is empty");
    let user = format!("USER {USER}:{USER}");
    for line in [&*user, "COPY --from=build /image /", "ENTRYPOINT [\"/deployment\"]"] {
        assert!(image.lines().any(|each| each == line), "{line} is missing");
    }
    assert!(image.contains("CMD [\"serve\", \"0.0.0.0:5000\"]"));
    assert!(image.contains("CMD [\"/deployment\", \"probe\", \"127.0.0.1:5000\"]"));
    assert!(!image.contains("RUN "), "there is no shell");
    assert!(image.contains(&format!(" --start-period={}m ", START_SECONDS / 60)));
}

#[test]
fn a_container_has_time_to_stop_and_its_image_has_the_health_check() {
    let text = read("Containerfile");
    let (head, image) = text.split_once("\nFROM ").unwrap();
    let comment: String =
        head.lines().map(|line| line.trim_start_matches('#').trim_end_matches('\\')).collect();
    let (build, run) = comment.split_once(" podman run ").expect("it says how to run the image");
    let words: Vec<&str> = run.split_whitespace().collect();
    let timeout = words.iter().position(|word| *word == "--stop-timeout").map(|at| words[at + 1]);
    let timeout: u64 = timeout.expect("podman kills after ten seconds").parse().unwrap();
    let (_, lame_duck) = image.split_once("LAME_DUCK_MILLISECONDS=").unwrap();
    let lame_duck: u64 = lame_duck.lines().next().unwrap().parse().unwrap();
    assert!(timeout * 1000 > lame_duck + DRAIN_SECONDS * 1000, "{timeout} s, {lame_duck} ms");
    // The other format of images, which podman writes by default, has no health check.
    assert!(image.contains("\nHEALTHCHECK "));
    assert!(build.contains(" podman build --format docker "), "{build}");
}

#[test]
fn the_unit_has_time_to_start_and_to_stop() {
    let unit = read("deployment@.service");
    let value = |name: &str| {
        let found = unit.split_once(name).unwrap_or_else(|| panic!("{name} is not set")).1;
        found.split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!(value("\nTimeoutStartSec="), format!("{}min", START_SECONDS / 60));
    let lame_duck: u64 = value("LAME_DUCK_MILLISECONDS=").parse().unwrap();
    let stop: u64 = value("\nTimeoutStopSec=").parse().unwrap();
    assert!(stop * 1000 > lame_duck + DRAIN_SECONDS * 1000, "{stop} s, {lame_duck} ms");
}

#[test]
fn systemd_understands_the_unit() {
    let installed = Command::new("systemd-analyze").arg("--version").output();
    if installed.is_err() {
        skip::without("systemd-analyze");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let unit = folder.path().join("deployment@5001.service");
    let installed_at = "/usr/local/bin/deployment";
    let text = read("deployment@.service");
    assert!(text.contains(installed_at));
    fs::write(&unit, text.replace(installed_at, env!("CARGO_BIN_EXE_deployment"))).unwrap();
    let output = Command::new("systemd-analyze").arg("verify").arg(&unit).output().unwrap();
    // The program may also report problems of other units.
    let said = String::from_utf8_lossy(&output.stderr);
    let about_ours: Vec<&str> = said.lines().filter(|line| line.contains("deployment@")).collect();
    assert_eq!(about_ours, [""; 0]);
}

/// Makes a folder with the program and nothing else, like the container. Returns a script that runs
/// it there as the user of the container.
fn root_with_only(program: &Path, folder: &Path) -> PathBuf {
    let root = folder.join("root");
    fs::create_dir_all(root.join("uploads")).unwrap();
    chown(root.join("uploads"), Some(USER), Some(USER)).unwrap();
    fs::copy(program, root.join("deployment")).unwrap();
    let script = folder.join("container");
    let run = format!(
        "#!/bin/sh\nexec chroot --userspec={USER}:{USER} {} /deployment \"$@\"\n",
        root.display()
    );
    fs::write(&script, run).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    script
}

fn uploads_and_downloads(stack: &Stack) {
    let address = stack.address();
    let cookie = log_in(address, "ada");
    assert_eq!(upload(address, &cookie, "a.txt", "some text").status, 201);
    assert_eq!(request(address, "GET", "/api/files/1", &cookie, "").text(), "some text");
}

/// `.ci/run` builds the program as the container file does, and names it in `STATIC_PROGRAM`.
#[test]
fn the_static_program_needs_nothing_but_itself() {
    let _shared = beside_others();
    let Some(program) = std::env::var_os("STATIC_PROGRAM") else {
        skip::because("STATIC_PROGRAM does not name a static program");
        return;
    };
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        skip::because("only root can change the root folder");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let script = root_with_only(Path::new(&program), folder.path());
    let Some((_folder, stack)) = start_with(|options| {
        options.program(&script).variable("UPLOADS", "/uploads").lame_duck(Duration::ZERO)
    }) else {
        return;
    };
    uploads_and_downloads(&stack);
    let process = stack.instance_process(0).unwrap();
    assert_eq!(fs::metadata(format!("/proc/{process}")).unwrap().uid(), USER);
    assert_eq!(
        fs::read_link(format!("/proc/{process}/exe")).unwrap().file_name().unwrap(),
        "deployment"
    );
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    assert!(!maps.contains(".so"), "{maps}");
    // The health check of the container.
    let probe = |address: &str| {
        let mut command = Command::new(&script);
        command.args(["probe", address]).output().unwrap().status.success()
    };
    assert!(probe(&stack.instance(0).to_string()));
    let free = harness::free_address();
    assert!(!probe(&free.to_string()), "nothing listens there");
}
