"""The acklast command."""
