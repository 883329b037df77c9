"""Wire types of serving.speculative.dev/v1alpha1, their rules, and the definition made from them."""
