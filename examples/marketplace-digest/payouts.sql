-- $1 is the time that the firing is for: the day before it, however late it fires.
select p.payout, s.email, s.name, p.cents
from payouts p join sellers s on s.seller = p.seller
where p.paid_at > $1 - interval '1 day' and p.paid_at <= $1
