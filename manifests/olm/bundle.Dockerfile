# A bundle for the Operator Lifecycle Manager, made from the chart by `make generate`. Nobody publishes the
# image that it names; `make bundle ARGS="--registry REGISTRY/"` writes one with yours into build/release/olm.
FROM scratch

LABEL operators.operatorframework.io.bundle.mediatype.v1=registry+v1
LABEL operators.operatorframework.io.bundle.manifests.v1=manifests/
LABEL operators.operatorframework.io.bundle.metadata.v1=metadata/
LABEL operators.operatorframework.io.bundle.package.v1=speculative-operator
LABEL operators.operatorframework.io.bundle.channels.v1=alpha
LABEL operators.operatorframework.io.bundle.channel.default.v1=alpha
LABEL com.redhat.openshift.versions=v4.17

COPY manifests /manifests/
COPY metadata /metadata/
