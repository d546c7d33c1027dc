"""The first tables."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Creates the table of orders."""

    initial = True
    dependencies = ()
    operations = (
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(primary_key=True)),
                ("item", models.CharField(max_length=100)),
                ("confirmed", models.BooleanField(default=False)),
            ],
        ),
    )
