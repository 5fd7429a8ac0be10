"""Registry, plan, and the runner that keeps passes to their promises."""
