"""The preloader, a process of its own: it imports the app once, forks the children and reaps them."""
