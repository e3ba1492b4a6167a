"""Monthly Google Cloud budget of a stack, which sends email to an address. It stops nothing; `nodes.maxHours` does."""

from __future__ import annotations

import pulumi
import pulumi_gcp as gcp
from pulumi import ResourceOptions

from infra.gke.names import Site
from infra.settings.common import BUDGET_ALERTS
from infra.settings.gke_sections import GkeBudget


class MonthlyBudget(pulumi.ComponentResource):
    """Budget for all resources with the stack's label in the project, and the notification channel.

    Google generates the ids of both, so an interrupted run may leave a second one of either, which costs nothing.
    """

    def __init__(
        self, name: str, budget: GkeBudget, site: Site, opts: ResourceOptions, *, project_number: pulumi.Input[str]
    ) -> None:
        super().__init__("rdma-ray:gke:MonthlyBudget", name, {}, opts)
        opts, title = ResourceOptions(parent=self), site.named("budget")
        channel = gcp.monitoring.NotificationChannel(
            name,
            project=site.project,
            display_name=title,
            type="email",
            labels={"email_address": str(budget.email)},
            opts=opts,
        )
        gcp.billing.Budget(
            name,
            billing_account=str(budget.billing_account),
            display_name=title,
            # Without a currency, the amount has that of the billing account; another one is refused (Cloud Billing
            # Budget API v1, GoogleCloudBillingBudgetsV1BudgetAmount).
            amount={"specified_amount": {"units": str(budget.monthly)}},
            # The API returns projects by number.
            budget_filter={"projects": [pulumi.Output.concat("projects/", project_number)], "labels": site.labels},
            threshold_rules=[{"threshold_percent": percent / 100} for percent in BUDGET_ALERTS],
            # Administrators of the billing account also get its emails, unless these are turned off.
            all_updates_rule={
                "monitoring_notification_channels": [channel.name],
                "disable_default_iam_recipients": True,
            },
            opts=opts,
        )
        self.register_outputs({})
