"""The report: schema, build, renderings."""
