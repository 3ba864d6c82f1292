//! The methods of options.

/// Methods that change one option: `name(argument: kind) => field = value;`, after `[const]` if they are.
macro_rules! setters {
    ($($(#[$doc:meta])* $([$const:tt])? $name:ident($($argument:ident: $kind:ty),*) => $($field:ident).+ = $value:expr;)*) => {
        $(
            $(#[$doc])*
            #[must_use]
            pub $($const)? fn $name(mut self, $($argument: $kind),*) -> Self {
                self.$($field).+ = $value;
                self
            }
        )*
    };
}

pub(super) use setters;
