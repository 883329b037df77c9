"""The TGI engine (text-generation-inference), as of 3.3; in maintenance mode since December 2025."""
