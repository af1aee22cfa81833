def run_bench():
    pass
