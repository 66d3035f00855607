from tests.protocol.conftest import folder, toy

__all__ = ["folder", "toy"]
