//! The methods of a `Deserializer` that read a single value.

/// Calls a macro with the names of the `Deserializer` methods for numbers, text, `bool` and `char`.
macro_rules! for_each_value_method {
    ($callback:ident) => {
        $callback! {
            deserialize_bool deserialize_char deserialize_str deserialize_string
            deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
            deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
            deserialize_f32 deserialize_f64
        }
    };
}

pub(super) use for_each_value_method;
