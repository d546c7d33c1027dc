"""The screens: one module with view models and actions, and one template each."""
