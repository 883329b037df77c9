"""What a released image is made of, held fast: packages by hash, base by digest, bill of materials, provenance."""
