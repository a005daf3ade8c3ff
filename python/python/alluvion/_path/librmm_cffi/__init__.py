__import__("alluvion.rmm._install", fromlist=["_"])._take_over("librmm_cffi")
