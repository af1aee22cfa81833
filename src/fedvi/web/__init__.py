"""Scripts and styles of both pages, and how a page is put together."""
