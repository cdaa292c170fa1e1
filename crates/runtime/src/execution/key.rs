//! The key under which the engine collects measurements: the entry for the number or the path of a
//! route.

/// The number of entries. With more routes some share an entry, which may cost speed but never
/// changes a response.
const ENTRIES: usize = 1024;

/// The last entries belong to no route.
const REFUSALS: usize = ENTRIES - 2;
const RAW: usize = ENTRIES - 1;
const OF_ROUTES: usize = ENTRIES - 2;

/// Neighbouring numbers get entries this far apart, because threads that change adjacent entries
/// would wait for each other's cache lines. It has no divisor in common with `OF_ROUTES`, so the
/// first `OF_ROUTES` numbers have different entries.
const SPREAD: usize = 421;

/// The entry of a route in the measurements, by its number or its hashed path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ExecutionKey(u16);

impl ExecutionKey {
    /// The number of entries.
    pub(crate) const COUNT: usize = ENTRIES;

    /// Returns the entry of a route that the service numbered. Services number from zero.
    pub(crate) fn numbered(route: u32) -> Self {
        Self::at(route as usize % OF_ROUTES * SPREAD % OF_ROUTES)
    }

    /// Returns the entry of the answers to requests that are refused.
    pub(crate) fn of_refusals() -> Self {
        Self::at(REFUSALS)
    }

    /// Returns the entry of raw protocols.
    pub(crate) fn of_raw() -> Self {
        Self::at(RAW)
    }

    /// Returns the entry of a path, for services that do not number their routes. All segments with
    /// a digit count as equal: `/users/17` and `/users/42` are one route.
    #[inline]
    pub(crate) fn of_path(path: &str) -> Self {
        let bytes = path.as_bytes();
        let mut hash = START ^ bytes.len() as u64;
        let mut found = 0;
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            let word = u64::from_le_bytes(word.try_into().unwrap_or_default());
            found |= digits(word);
            hash = mix(hash, word);
        }
        // Reads the last eight bytes, which may overlap with bytes that were read before.
        let rest = match bytes.last_chunk() {
            Some(last) => u64::from_le_bytes(*last),
            None => bytes.iter().fold(NO_DIGITS, |word, &byte| word << 8 | u64::from(byte)),
        };
        if found | digits(rest) != 0 {
            return Self::of_path_with_digits(bytes);
        }
        Self::fold(mix(hash, rest))
    }

    #[cold]
    fn of_path_with_digits(path: &[u8]) -> Self {
        let mut hash = START;
        for segment in path.split(|&byte| byte == b'/') {
            hash = mix(hash, u64::from(b'/'));
            if segment.iter().any(u8::is_ascii_digit) {
                hash = mix(hash, u64::from(b'#'));
            } else {
                hash = segment.iter().fold(hash, |hash, &byte| mix(hash, u64::from(byte)));
            }
        }
        Self::fold(hash)
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "folded to fewer bits than u16 has")]
    fn fold(hash: u64) -> Self {
        // The last letters of a path are in the high bits, and a multiplication carries upwards
        // only.
        let hash = (hash ^ (hash >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self((hash >> 48) as u16 % OF_ROUTES as u16)
    }

    /// Returns the entry of the protocol that follows when a request of this route has upgraded its
    /// connection.
    pub(crate) fn of_upgrade(self) -> Self {
        Self::at((self.index() + OF_ROUTES / 2) % OF_ROUTES)
    }

    /// Returns the entry at an index.
    #[expect(clippy::cast_possible_truncation, reason = "there are fewer entries than u16 has")]
    pub(crate) const fn at(index: usize) -> Self {
        Self((index % ENTRIES) as u16)
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

const START: u64 = 0xcbf2_9ce4_8422_2325;

/// Eight bytes without a digit, into which the bytes of a short path are shifted.
const NO_DIGITS: u64 = u64::MAX;

#[inline]
fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(5) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Marks the digits among eight bytes. The result is 0 if there is none. An exclusive or maps
/// digits to the values 0 to 9. Then the usual test for bytes below 10 borrows from the high bit.
#[inline]
fn digits(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let turned = word ^ (ONES * 0x30);
    turned.wrapping_sub(ONES * 10) & !turned & (ONES * 0x80)
}

/// Where a handler runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Execution {
    /// Where it is cheapest, by the measurements.
    #[default]
    Learned,
    Inline,
    Dispatched,
}

/// The key of a request's measurements, and where its handler runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) key: ExecutionKey,
    pub(crate) execution: Execution,
    /// The request is answered even if other routes use all threads.
    pub(crate) is_vital: bool,
    /// The number that the service gave to the route, or [`NO_NUMBER`].
    pub(crate) number: u32,
}

/// Stands for a route without a number. A service may use this number itself, since the name of
/// such a route is found by its key as well.
pub(crate) const NO_NUMBER: u32 = u32::MAX;

impl Route {
    /// Returns a route that runs where it is cheapest.
    pub(crate) fn learned(key: ExecutionKey) -> Self {
        Self { key, execution: Execution::Learned, is_vital: false, number: NO_NUMBER }
    }

    #[inline(always)]
    pub(crate) fn id(self) -> RouteId {
        RouteId { key: self.key, number: self.number }
    }
}

/// What identifies a route: its number, which several routes never share, and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RouteId {
    pub(crate) key: ExecutionKey,
    number: u32,
}

impl RouteId {
    /// Returns the number that the service gave to the route.
    pub(crate) fn number(self) -> Option<u32> {
        (self.number != NO_NUMBER).then_some(self.number)
    }

    /// Returns the ID as a number that fits into an atomic.
    #[inline(always)]
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.number) << 32 | u64::from(self.key.0)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the parts of `to_bits`")]
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self { key: ExecutionKey::at(bits as u16 as usize), number: (bits >> 32) as u32 }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_route_fits_into_an_atomic() {
        for number in [0, 1, 70_000, NO_NUMBER - 1, NO_NUMBER] {
            for index in [0, 1, ExecutionKey::COUNT - 1] {
                let id = Route { number, ..Route::learned(ExecutionKey::at(index)) }.id();
                assert_eq!(RouteId::from_bits(id.to_bits()), id);
                assert_eq!(id.number(), (number != NO_NUMBER).then_some(number));
            }
        }
    }

    /// What refusals and raw protocols cost says nothing about a route, and nothing about its
    /// upgraded connections.
    #[test]
    fn routes_share_no_entry_until_there_are_many() {
        let mut entries: HashSet<_> = (0..500).map(ExecutionKey::numbered).collect();
        entries.extend((0..500).map(|route| ExecutionKey::numbered(route).of_upgrade()));
        entries.extend([ExecutionKey::of_refusals(), ExecutionKey::of_raw()]);
        assert_eq!(entries.len(), 1002);
        assert!((0..1022).all(|route| {
            let key = ExecutionKey::numbered(route);
            ![key, key.of_upgrade()].iter().any(|key| key.index() >= OF_ROUTES)
        }));
        let all: HashSet<_> = (0..1022).map(ExecutionKey::numbered).collect();
        assert_eq!(all.len(), 1022);
    }

    #[test]
    fn no_path_has_the_entry_of_refusals_or_of_raw_protocols() {
        let used: HashSet<_> = (0..26_u32.pow(3))
            .map(|word| {
                let letter = |place: u32| char::from(b'a' + (word / 26_u32.pow(place) % 26) as u8);
                ExecutionKey::of_path(&format!("/{}{}{}", letter(0), letter(1), letter(2)))
            })
            .collect();
        assert!(used.len() > 1000, "{}", used.len());
        assert!(used.iter().all(|key| key.index() < OF_ROUTES));
    }

    #[test]
    fn segments_with_digits_are_one_route() {
        let same = ExecutionKey::of_path("/users/17/posts");
        assert_eq!(same, ExecutionKey::of_path("/users/42/posts"));
        assert_ne!(same, ExecutionKey::of_path("/users/17/likes"));
        assert_eq!(ExecutionKey::of_path("/users/9"), ExecutionKey::of_path("/users/a1b2c3"));
        assert_ne!(ExecutionKey::of_path("/plaintext"), ExecutionKey::of_path("/sleep"));
        assert_ne!(ExecutionKey::of_path("/a"), ExecutionKey::of_path("/b"));
        assert_eq!(
            ExecutionKey::of_path("/a/long/path/to/item1"),
            ExecutionKey::of_path("/a/long/path/to/item2")
        );
        assert_eq!(ExecutionKey::of_path("/0"), ExecutionKey::of_path("/9"));
    }

    #[test]
    fn paths_that_differ_in_their_last_letters_have_different_entries() {
        for (one, other) in [
            ("/orders/add", "/orders/all"),
            ("/locked/a", "/locked/b"),
            ("/report.csv", "/report.css"),
            ("/abcdefgh/x", "/abcdefgh/y"),
        ] {
            assert_ne!(
                ExecutionKey::of_path(one),
                ExecutionKey::of_path(other),
                "{one} and {other}"
            );
        }
    }
}
