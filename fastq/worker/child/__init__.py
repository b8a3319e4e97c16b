"""The runners, loaded in a child: between the pool's bytes and the user's functions."""
