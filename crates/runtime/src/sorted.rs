//! Short lists that are kept in order. The standard library's sort is made for long ones, and adds
//! about 7 kB to a program for each type that it sorts.

/// Inserts an item after all items whose keys are not greater, and drops the last one if there are
/// more than `len_max`.
pub(crate) fn insert_sorted<T, K: Ord>(
    list: &mut Vec<T>,
    item: T,
    len_max: usize,
    key: impl Fn(&T) -> K,
) {
    let own = key(&item);
    let index = list.partition_point(|other| key(other) <= own);
    if index < len_max {
        list.insert(index, item);
        list.truncate(len_max);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_first_items_are_kept_in_order_and_equal_ones_in_order_of_arrival() {
        let mut list = Vec::new();
        for item in [(3, 'a'), (1, 'b'), (2, 'c'), (1, 'd'), (3, 'e'), (2, 'f')] {
            insert_sorted(&mut list, item, 4, |(key, _)| *key);
        }
        assert_eq!(list, [(1, 'b'), (1, 'd'), (2, 'c'), (2, 'f')]);
        insert_sorted(&mut list, (0, 'g'), 0, |(key, _)| *key);
        assert_eq!(list.len(), 4);
    }
}
