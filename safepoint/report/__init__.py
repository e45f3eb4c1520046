"""The page of `safepoint report`: `page` makes it, `drawing` its pictures, `advice` says how often to save."""
