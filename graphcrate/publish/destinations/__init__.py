"""Where a published image goes: each kind of destination a class with one interface (`destination.Destination`)."""
