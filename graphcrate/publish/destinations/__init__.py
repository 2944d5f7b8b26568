"""Where a published image goes beside a registry: a shared folder, a registry's `oras://`."""
