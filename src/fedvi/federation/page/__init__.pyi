from fedvi.federation.page.server import LivePage as LivePage
