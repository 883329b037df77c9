"""Model sources on loopback, for tests, the demo and measurements: a hub, an OCI registry, an S3 service.

`python -m modelservers.hub --folder DIR --port N` and `python -m modelservers.oci ...` serve by hand. The hub and the
registry are emulations, written to the published protocols and exercised by the real clients; the S3 service is a real
one (`modelservers.s3`). Faults are switched by `/_control` while a server runs (`modelservers.faults`).
"""
