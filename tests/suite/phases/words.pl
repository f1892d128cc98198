# Counts, sorts and rewrites words, in rounds.
use strict;
my @lines = <>;
for my $round (1 .. 4) {
    my %count;
    for my $line (@lines) { $count{$_}++ for split ' ', $line }
    my @order = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
    print "$_ $count{$_}\n" for @order[0 .. 20];
    s/([aeiou])(\w)/$2$1/g for @lines;
    my $text = join '', @lines;
    my $found = () = $text =~ /\b(\w)\w*\1\b/g;
    print "$found\n";
}
