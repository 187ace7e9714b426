"""The stages of preparing a corpus. Each stage continues where a killed run stopped."""
