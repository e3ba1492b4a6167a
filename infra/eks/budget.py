"""Monthly AWS budget of a stack, which sends email to an address. It stops nothing; `nodes.maxHours` does."""

from __future__ import annotations

import pulumi_aws as aws
from pulumi import ResourceOptions

from infra.eks.iam import Role
from infra.eks.names import EksNames
from infra.naming import STACK
from infra.settings.common import BUDGET_ALERTS, CloudBudget


def monthly_budget(budget: CloudBudget, names: EksNames, opts: ResourceOptions, *, role: Role) -> None:
    """Create the budget for all resources with the stack's tag.

    AWS counts such costs from the day on which the tag is activated as a cost allocation tag (docs/bills.md).

    Args:
        role: A role of the account, whose number is in its ARN. With the number, the budget's id follows from its
            inputs, and an interrupted run finds it (`tools.recovery`).
    """
    notifications: list[aws.budgets.BudgetNotificationArgsDict] = [
        {
            "comparison_operator": "GREATER_THAN",
            "notification_type": "ACTUAL",
            "threshold": percent,
            "threshold_type": "PERCENTAGE",
            "subscriber_email_addresses": [str(budget.email)],
        }
        for percent in BUDGET_ALERTS
    ]
    aws.budgets.Budget(
        "budget",
        account_id=role.arn.apply(account_of),
        name=names.named("budget"),
        budget_type="COST",
        time_unit="MONTHLY",
        limit_amount=str(budget.monthly),
        limit_unit="USD",
        # "user:" precedes the keys of tags that users made (pulumi-aws 7.51.1: budgets.Budget, examples).
        cost_filters=[{"name": "TagKeyValue", "values": [f"user:{STACK}${names.stack}"]}],
        notifications=notifications,
        tags=names.tags("budget"),
        opts=opts,
    )


def account_of(arn: str) -> str:
    """Return the account number in an ARN."""
    return arn.split(":")[4]
