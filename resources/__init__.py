"""What both code locations share: file access, configuration, events, alerts.

Belongs here: anything that touches a configured root, the Dagster instance's history, or an alert's delivery.
Does not belong here: what a store or a cache means; that is the domain of `vin_assets` and `dms_assets`.

`files` and `config` import no Dagster, so that domain code may use them.
"""
