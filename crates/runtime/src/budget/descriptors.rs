//! The descriptors that the process may have, and the part of them that is for connections.

/// One descriptor in this many is not used for connections. The program needs them for files,
/// databases and clients, and the engine for the second handle of a streamed content.
const RESERVED_SHARE: usize = 8;

/// The minimum of reserved descriptors: the standard streams, pollers and listeners of the engine,
/// and some files.
const RESERVED_MIN: usize = 32;

/// The maximum of reserved descriptors. Database pools and open files are counted in hundreds.
const RESERVED_MAX: usize = 1024;

/// The soft limit is not raised beyond this number, which is Linux's default maximum for one
/// process (`fs.nr_open`). Some containers have a hard limit of 1,000,000,000, and programs that a
/// handler starts may loop over all descriptors.
#[cfg(unix)]
const RAISED_MAX: u64 = 1024 * 1024;

/// Returns the maximum of connections: the configured number, or less if `descriptors_max` is too
/// low for it.
pub(crate) fn connections_max(configured: usize, descriptors_max: Option<usize>) -> usize {
    let Some(descriptors_max) = descriptors_max else { return configured };
    let reserved = (descriptors_max / RESERVED_SHARE)
        .clamp(RESERVED_MIN, RESERVED_MAX)
        .min(descriptors_max / 2);
    configured.min(descriptors_max - reserved).max(1)
}

/// Raises the soft limit of open files to the hard limit.
#[cfg(unix)]
pub(crate) fn raise_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(current) = current else { return };
    let mut wanted = maximum.unwrap_or(RAISED_MAX).min(RAISED_MAX);
    // macOS refuses values above another limit of the kernel, which the hard limit does not
    // reflect.
    while wanted > current {
        if setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).is_ok() {
            return;
        }
        wanted /= 2;
    }
}

/// Returns the soft limit of open files; `None` if there is none.
#[cfg(unix)]
pub(crate) fn limit() -> Option<usize> {
    use rustix::process::{Resource, getrlimit};

    usize::try_from(getrlimit(Resource::Nofile).current?).ok()
}

/// Windows has no limit of handles except memory.
#[cfg(not(unix))]
pub(crate) fn raise_limit() {}

#[cfg(not(unix))]
pub(crate) fn limit() -> Option<usize> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_descriptors_are_reserved_for_the_program() {
        for (configured, descriptors_max, expected) in [
            (65_536, None, 65_536),
            (65_536, Some(1024), 896),
            (65_536, Some(65_536), 64_512),
            (65_536, Some(1_048_576), 65_536),
            (100, Some(1024), 100),
            (65_536, Some(256), 224),
            (65_536, Some(40), 20),
            (65_536, Some(0), 1),
        ] {
            assert_eq!(
                connections_max(configured, descriptors_max),
                expected,
                "{descriptors_max:?}"
            );
        }
    }

    #[test]
    #[cfg(unix)]
    fn the_limit_is_raised_and_never_lowered() {
        let before = limit();
        raise_limit();
        assert!(before.is_none_or(|before| limit().is_none_or(|after| after >= before)));
    }
}
