"""What is shown in Grafana and alerted on by Prometheus, made by code and shipped by the chart."""
