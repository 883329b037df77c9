"""Files that `install` lays into the engine's environment. They are never imported from here."""
