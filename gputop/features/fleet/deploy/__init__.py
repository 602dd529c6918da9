"""Write what a cluster runs: rules, alerts, dashboards, manifests."""
