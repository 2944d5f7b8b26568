"""OCI image formats: descriptors, configs, layouts, validation."""
