//! The permits that routes of the app use, under names that tell them apart.

use std::fmt::Write as _;

use filoplume_runtime::Permits;

use super::open_metrics::{OpenMetrics, labels};

/// Permits and their name in metrics.
pub(super) struct NamedPermits {
    name: String,
    permits: Permits,
}

impl NamedPermits {
    /// Returns each of these permits once. Different permits with the same name are numbered: in a
    /// sum, the free permits of one would hide that the other is used up.
    pub(super) fn of<'p>(used: impl Iterator<Item = &'p Permits>) -> Box<[Self]> {
        let mut all: Vec<Self> = Vec::new();
        for permits in used {
            if all.iter().any(|known| known.permits == *permits) {
                continue;
            }
            let alike = all.iter().filter(|known| known.permits.name() == permits.name()).count();
            let mut name = permits.name().to_owned();
            if alike > 0 {
                let _ = write!(name, " ({})", alike + 1);
            }
            all.push(Self { name, permits: permits.clone() });
        }
        all.into()
    }

    /// Returns the name, how many permits are taken now, and how many there are.
    pub(super) fn read(&self) -> (&str, u64, u64) {
        let count = self.permits.count();
        (&self.name, count.saturating_sub(self.permits.available()) as u64, count as u64)
    }
}

/// Writes how many of the permits are taken and free.
pub(super) fn write_permits(permits: &[NamedPermits], text: &mut OpenMetrics) {
    if permits.is_empty() {
        return;
    }
    text.family("filoplume_permits", "gauge", "Permits that routes use, such as connections.");
    for (name, taken, count) in permits.iter().map(NamedPermits::read) {
        text.gauge(&labels(&[("name", name), ("state", "taken")]), taken);
        text.gauge(&labels(&[("name", name), ("state", "free")]), count - taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_listed_once_and_those_of_the_same_name_are_numbered() {
        let [one, two] = [(); 2].map(|()| Permits::new("database", 16));
        let mail = Permits::new("mail", 2);
        let named = NamedPermits::of([&one, &two, &one, &mail, &two].into_iter());
        let read: Vec<_> = named.iter().map(NamedPermits::read).collect();
        assert_eq!(read, [("database", 0, 16), ("database (2)", 0, 16), ("mail", 0, 2)]);
    }
}
