"""Where histories come from, and how they are cut: log -> cohort."""
