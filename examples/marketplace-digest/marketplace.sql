-- A marketplace with 1,200 sellers, of whom every tenth wants no digest, and 300 payouts of one day.
create table sellers (
    seller       text primary key,
    name         text not null,
    email        text not null,
    contact      text not null,
    wants_digest boolean not null,
    offers       integer not null
);
create table payouts (
    payout  text primary key,
    seller  text not null references sellers,
    cents   integer not null,
    paid_at timestamptz not null
);
insert into sellers
select 'S-' || lpad(n::text, 4, '0'), 'Seller ' || n, 'seller-' || n || '@shop.example',
       'contact-' || n || '1@shop.example', n % 10 <> 7, n % 17
from generate_series(1, 1200) as n;
