"""A simulated serving deployment that shares no assumption with the tuner, and those who set its K.

Nothing here is made from tuner/ or physics/: how a step is timed, how prompts wait, how texts accept drafts and how
requests come were written apart from them, so that what the tuner assumes is not true here by construction. `law` puts
the tuner on it, `rivals` other laws, `oracle` the best table in hindsight. `speculative simulate` and dev/bench
call it.
"""
