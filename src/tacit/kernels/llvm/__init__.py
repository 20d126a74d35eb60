"""Kernels that emit LLVM IR by hand; docs/kernels.md says what, why and how they are tested."""
