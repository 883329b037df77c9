"""Wire types of serving.speculative.dev/v1alpha1, and everything that is generated from them. The only room of
pydantic."""
