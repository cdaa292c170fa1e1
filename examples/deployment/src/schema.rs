//! The tables, as the migrations make them.

diesel::table! {
    users (id) {
        id -> BigInt,
        name -> Text,
        password -> Text,
    }
}

diesel::table! {
    notes (id) {
        id -> BigInt,
        author -> BigInt,
        text -> Text,
    }
}

diesel::table! {
    files (id) {
        id -> BigInt,
        owner -> BigInt,
        name -> Text,
        stored -> Text,
        bytes -> BigInt,
    }
}

diesel::joinable!(notes -> users (author));
diesel::allow_tables_to_appear_in_same_query!(notes, users);
