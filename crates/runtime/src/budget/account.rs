//! How much of the memory budget each client uses. Each connection has an account, and its buffered
//! bytes are charged to that.
//!
//! A counted client may grow while it has at most twice what is free, and a large IPv6 network
//! eight times as much ([`thresholds`](super::thresholds)): one client alone leaves a third of the
//! budget to others. At least [one part in 128](FREE_SHARE) counts as free, because a client that
//! has next to nothing has not made memory short. A sum is counted before it is checked, so two
//! charges at the limit may both be refused, and none is allowed beyond it.

use std::net::IpAddr;
use std::sync::Arc;

use crate::budget::clients::ClientConnection;
use crate::budget::estimates::Estimates;
use crate::budget::memory::Memory;
use crate::client_address::client_network;

/// At least one part in this many of the budget counts as free when shares are computed. So a
/// client may have a 64th of the budget even if others have all of it.
const FREE_SHARE: usize = 128;

/// The memory budget as one connection uses it. Connections whose clients are not counted share
/// one.
#[derive(Debug)]
pub(crate) struct Account {
    memory: Arc<Memory>,
    client: Option<Arc<ClientConnection>>,
}

/// What one owner holds for as long as a connection is open. Dropping it releases the bytes.
///
/// What others use otherwise, such as contents, does not count against it: else who fills memory
/// with contents would keep all others from what lasts.
#[derive(Debug)]
pub(crate) struct LastingCharge {
    account: Arc<Account>,
    bytes: usize,
}

/// The part of the budget that one owner uses. Dropping it releases the bytes.
#[derive(Debug, Default)]
pub(crate) struct Charge {
    account: Option<Arc<Account>>,
    bytes: usize,
}

impl Account {
    pub(crate) fn new(memory: &Arc<Memory>, client: Option<Arc<ClientConnection>>) -> Arc<Self> {
        Arc::new(Self { memory: Arc::clone(memory), client })
    }

    /// Returns the client, if it is counted.
    pub(crate) fn client(&self) -> Option<&Arc<ClientConnection>> {
        self.client.as_ref()
    }

    /// Returns whether the account belongs to the client with this address.
    pub(crate) fn is_of(&self, address: IpAddr) -> bool {
        self.client.as_ref().is_some_and(|client| client.client() == client_network(address))
    }

    /// Returns whether a content may begin. `length` is `None` if it is unknown.
    pub(crate) fn may_begin(&self, length: Option<u64>) -> bool {
        let length = length.and_then(|length| usize::try_from(length).ok()).unwrap_or(usize::MAX);
        self.memory.may_begin(length) && self.is_within_share(self.memory.used_max(length))
    }

    /// Returns whether the client has more than its share.
    pub(crate) fn is_beyond_share(&self) -> bool {
        !self.is_within_share(self.memory.bytes_max())
    }

    /// Returns what uses the memory, as text.
    pub(crate) fn usage(&self) -> String {
        let mut usage = self.memory.usage().to_string();
        if let Some(client) = &self.client {
            let used = client.memory();
            usage.push_str(&format!(
                "; this client has {used} of them, and may have two thirds of what others leave"
            ));
        }
        usage
    }

    /// Returns the budget for what code of the program takes for requests.
    pub(super) fn estimates(&self) -> &Estimates {
        self.memory.estimates()
    }

    /// Returns whether the client has at most its share if all clients together may use `used_max`
    /// bytes.
    fn is_within_share(&self, used_max: usize) -> bool {
        let free_min = self.memory.bytes_max() / FREE_SHARE;
        let free = used_max.saturating_sub(self.memory.used()).max(free_min);
        self.client.as_ref().is_none_or(|client| client.may_have_memory(free))
    }

    /// Counts more bytes if the budget and the client's share allow it. The charge then has
    /// `bytes`.
    fn try_add(&self, more: usize, bytes: usize) -> bool {
        let used_max = self.memory.used_max(bytes);
        let is_allowed = self.add(more) <= used_max && self.is_within_share(used_max);
        if !is_allowed {
            self.remove(more);
        }
        is_allowed
    }

    /// Counts more bytes that last if their part of the budget and the client's share of that
    /// allow it.
    fn try_add_lasting(&self, more: usize) -> bool {
        let Some(left) = self.memory.try_add_lasting(more) else { return false };
        let is_in_budget = self.add(more) <= self.memory.bytes_max();
        let free = left.max(self.memory.bytes_max() / FREE_SHARE);
        let is_in_share = self.client.as_ref().is_none_or(|client| client.may_have_memory(free));
        let is_allowed = is_in_budget && is_in_share;
        if !is_allowed {
            self.remove_lasting(more);
        }
        is_allowed
    }

    fn remove_lasting(&self, less: usize) {
        self.remove(less);
        self.memory.remove_lasting(less);
    }

    /// Counts more bytes. Returns how many bytes all accounts then use.
    fn add(&self, more: usize) -> usize {
        if let Some(client) = &self.client {
            client.add_memory(more);
        }
        self.memory.add(more)
    }

    fn remove(&self, less: usize) {
        if let Some(client) = &self.client {
            client.remove_memory(less);
        }
        self.memory.remove(less);
    }
}

impl LastingCharge {
    pub(crate) fn of(account: &Arc<Account>) -> Self {
        Self { account: Arc::clone(account), bytes: 0 }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Changes the number of bytes if there is memory for them. A smaller number is always allowed.
    pub(crate) fn try_set(&mut self, bytes: usize) -> bool {
        if let Some(less) = self.bytes.checked_sub(bytes) {
            self.account.remove_lasting(less);
        } else if !self.account.try_add_lasting(bytes - self.bytes) {
            return false;
        }
        self.bytes = bytes;
        true
    }
}

impl Drop for LastingCharge {
    fn drop(&mut self) {
        self.account.remove_lasting(self.bytes);
    }
}

impl Charge {
    pub(crate) fn of(account: &Arc<Account>) -> Self {
        Self { account: Some(Arc::clone(account)), bytes: 0 }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn account(&self) -> Option<&Account> {
        self.account.as_deref()
    }

    /// Returns whether the bytes count in a budget. Those of a default charge do not.
    pub(crate) fn is_counted(&self) -> bool {
        self.account.is_some()
    }

    /// Charges this many bytes to the account of `other`, as [`set`](Self::set) does.
    pub(crate) fn set_beside(&mut self, other: &Self, bytes: usize) {
        if let Some(account) = &other.account {
            self.set(account, bytes);
        }
    }

    /// Changes the number of bytes if the budget allows it. A smaller number is always allowed.
    pub(crate) fn try_set(&mut self, bytes: usize) -> bool {
        let Some(account) = &self.account else { return true };
        if bytes <= self.bytes {
            account.remove(self.bytes - bytes);
        } else if !account.try_add(bytes - self.bytes, bytes) {
            return false;
        }
        self.bytes = bytes;
        true
    }

    /// Changes the number of bytes regardless of the budget. The bytes already exist and are
    /// bounded elsewhere.
    pub(crate) fn set(&mut self, account: &Arc<Account>, bytes: usize) {
        if bytes == self.bytes {
            return;
        }
        let account = self.account.get_or_insert_with(|| Arc::clone(account));
        if bytes > self.bytes {
            account.add(bytes - self.bytes);
        } else {
            account.remove(self.bytes - bytes);
        }
        self.bytes = bytes;
    }

    /// As [`set`](Self::set), for this many additional bytes.
    pub(crate) fn add(&mut self, account: &Arc<Account>, bytes: usize) {
        self.set(account, self.bytes + bytes);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(account) = &self.account {
            account.remove(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::clients::Clients;
    use crate::budget::memory::SHORT_BYTES;

    /// Returns an account of a client that is not counted.
    fn uncounted(bytes_max: usize) -> Arc<Account> {
        Account::new(&Memory::new(Some(bytes_max)), None)
    }

    /// Returns the accounts of connections from these addresses.
    fn counted<const N: usize>(memory: &Arc<Memory>, addresses: [&str; N]) -> [Arc<Account>; N] {
        let clients = Arc::new(Clients::new(100));
        addresses
            .map(|address| Account::new(memory, clients.admit(address.parse().unwrap()).unwrap()))
    }

    /// Charges one byte more to an account until it may have no more.
    fn fill(account: &Arc<Account>) -> Charge {
        let mut charge = Charge::of(account);
        while charge.try_set(charge.bytes() + 1) {}
        charge
    }

    #[test]
    fn a_charge_beyond_the_budget_changes_nothing() {
        let account = uncounted(1000);
        let used = || account.memory.used();
        let (mut one, mut other) = (Charge::of(&account), Charge::of(&account));
        assert!(one.try_set(600) && other.try_set(400));
        assert!(!one.try_set(601));
        assert_eq!(used(), 1000);
        assert!(other.try_set(100) && one.try_set(900));
        drop(one);
        assert_eq!(used(), 100);
        other.set(&account, 5000);
        assert_eq!(used(), 5000, "existing bytes are counted");
        other.set(&account, 4000);
        assert_eq!(used(), 4000, "and fewer are given back");
        assert!(!other.try_set(4001) && other.try_set(50));
        drop(other);
        assert_eq!(used(), 0);
    }

    #[test]
    fn long_contents_leave_room_for_short_ones() {
        let account = uncounted(16 * SHORT_BYTES);
        let mut long: Vec<Charge> = (0..8).map(|_| Charge::of(&account)).collect();
        assert!(long[..6].iter_mut().all(|charge| charge.try_set(2 * SHORT_BYTES)));
        assert!(!long[6].try_set(SHORT_BYTES + 1));
        let mut short: Vec<Charge> = (0..4).map(|_| Charge::of(&account)).collect();
        assert!(short.iter_mut().all(|charge| charge.try_set(SHORT_BYTES)));
        assert!(!long[7].try_set(1), "the whole budget is used");
    }

    #[test]
    fn slow_peers_are_closed_first_and_then_only_short_contents_begin() {
        let account = uncounted(1000);
        let mut charge = Charge::default();
        let short = SHORT_BYTES as u64;
        for (used, is_pressed, may_begin_long) in [
            (499, false, true),
            (500, true, true),
            (749, true, true),
            (750, true, false),
            (2000, true, false),
        ] {
            charge.set(&account, used);
            assert_eq!(account.memory.is_pressed(), is_pressed, "{used}");
            assert_eq!(account.may_begin(Some(short + 1)), may_begin_long, "{used}");
            assert_eq!(account.may_begin(None), may_begin_long, "{used}");
            assert!(account.may_begin(Some(short)), "{used}");
        }
    }

    #[test]
    fn one_client_has_two_thirds_and_the_next_one_as_much_of_the_rest() {
        let memory = Memory::new(Some(9000));
        let [one, same, next] = counted(&memory, ["192.0.2.1", "192.0.2.1", "192.0.2.2"]);
        let all = Account::new(&memory, None);
        let of_one = fill(&one);
        assert_eq!((of_one.bytes(), fill(&same).bytes()), (6000, 0), "its connections together");
        assert!(!same.is_beyond_share() && next.may_begin(Some(1)));
        let of_next = fill(&next);
        assert_eq!((of_next.bytes(), fill(&all).bytes()), (2000, 1000));
        drop(of_next);
        assert_eq!(fill(&next).bytes(), 2000);
        drop(of_one);
        assert_eq!((memory.used(), fill(&same).bytes()), (0, 6000));
    }

    fn fill_lasting(account: &Arc<Account>) -> LastingCharge {
        let mut charge = LastingCharge::of(account);
        while charge.try_set(charge.bytes() + 1) {}
        charge
    }

    #[test]
    fn what_lasts_does_not_make_memory_short() {
        let memory = Memory::new(Some(12_800));
        let [one, other] = counted(&memory, ["192.0.2.1", "192.0.2.2"]);
        let all = Account::new(&memory, None);
        let mut of_one = fill_lasting(&one);
        assert_eq!(of_one.bytes(), 2133, "two thirds of a quarter");
        let of_all = fill_lasting(&all);
        assert_eq!((of_all.bytes(), fill_lasting(&other).bytes()), (1067, 0));
        assert!(!memory.is_short() && fill(&other).bytes() > 5000, "contents get what is left");
        assert!(of_one.try_set(10) && !of_one.try_set(1423), "two thirds of what others leave");
        assert!(of_one.try_set(1422));
        drop((of_one, of_all));
        assert_eq!((memory.used(), memory.try_add_lasting(0)), (0, Some(3200)));
    }

    #[test]
    fn contents_of_others_keep_nobody_from_what_lasts() {
        let memory = Memory::new(Some(12_800));
        let [one, other] = counted(&memory, ["192.0.2.1", "192.0.2.2"]);
        let mut contents = Charge::default();
        contents.set(&one, 9000);
        assert!(memory.is_short());
        assert_eq!(fill_lasting(&other).bytes(), 2133);
        contents.set(&one, 12_700);
        assert_eq!(fill_lasting(&other).bytes(), 100, "the budget bounds all");
    }

    #[test]
    fn a_client_beyond_its_share_begins_nothing_and_shrinks() {
        let memory = Memory::new(Some(9000));
        let [one, other] = counted(&memory, ["192.0.2.1", "192.0.2.2"]);
        let mut charge = Charge::default();
        charge.set(&one, 6001);
        assert!(one.is_beyond_share() && !one.may_begin(Some(1)), "existing bytes are counted");
        assert!(!other.is_beyond_share() && other.may_begin(Some(1)));
        assert!(!charge.try_set(6002) && charge.try_set(6000));
        assert!(!one.is_beyond_share() && one.may_begin(Some(1)));
        assert!(one.usage().contains("this client has 6000 of them"), "{}", one.usage());
    }

    /// The responses of such a client are not broken off because others have used the memory up.
    #[test]
    fn a_client_that_has_little_is_not_beyond_its_share_when_others_have_all() {
        let memory = Memory::new(Some(12_800));
        let [little, much] = counted(&memory, ["192.0.2.1", "192.0.2.2"]);
        let (mut of_all, mut of_little) = (Charge::default(), Charge::default());
        of_all.set(&Account::new(&memory, None), 12_800);
        of_little.set(&little, 200);
        assert!(memory.is_used_up() && !little.is_beyond_share());
        assert!(!of_little.try_set(201), "it gets nothing that is not there");
        let mut of_much = Charge::default();
        of_much.set(&much, 201);
        assert!(much.is_beyond_share());
    }

    #[test]
    fn an_ipv6_network_of_48_bits_leaves_a_ninth() {
        let memory = Memory::new(Some(9000));
        let subnets: [String; 9] = std::array::from_fn(|n| format!("2001:db8:0:{n}::1"));
        let accounts = counted(&memory, std::array::from_fn::<_, 9, _>(|n| &*subnets[n]));
        let charges = accounts.each_ref().map(fill);
        assert_eq!(charges.iter().map(Charge::bytes).sum::<usize>(), 8000);
        let [elsewhere] = counted(&memory, ["2001:db8:1::1"]);
        assert!(fill(&elsewhere).bytes() > 600);
    }

    #[test]
    fn long_contents_of_one_client_leave_room_for_those_of_others() {
        let memory = Memory::new(Some(24 * SHORT_BYTES));
        let [one, other] = counted(&memory, ["192.0.2.1", "192.0.2.2"]);
        let long = |account| {
            let mut charge = Charge::of(account);
            charge.try_set(2 * SHORT_BYTES).then_some(charge)
        };
        let mut of_one: Vec<_> = std::iter::from_fn(|| long(&one)).collect();
        assert_eq!(of_one.len(), 6, "two thirds of three quarters");
        assert!(one.may_begin(None) && fill(&one).bytes() < 2 * SHORT_BYTES);
        of_one.extend(long(&other));
        assert!(!one.may_begin(None) && other.may_begin(None) && one.may_begin(Some(1)));
    }
}
