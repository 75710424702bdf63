# Work for the end-to-end test: hashes, strings, regular expressions, interpreter threads, forks.
use strict;
use warnings;
use Digest::MD5 qw(md5_hex);

sub numbers { my ($s, $n) = @_; my @r; for (1 .. $n) { $s = ($s * 1103515245 + 12345) % 2147483648; push @r, $s; } return @r; }

sub work {
    my ($seed) = @_;
    my (%tree, @all);
    for my $x (numbers($seed, 20000)) {
        my $key = sprintf("%x", $x % 5000);
        push @{ $tree{ substr($key, 0, 1) }{$key} }, $x;
        push @all, "$key:" . ("x" x ($x % 50));
    }
    my $text = join ",", map { my $k = $_; map { "$k.$_=" . scalar @{ $tree{$k}{$_} } } sort keys %{ $tree{$k} } } sort keys %tree;
    my $count = () = $text =~ /\.([0-9a-f]{2,3})=(\d+)/g;
    (my $copy = $text) =~ s/(\d+)/<$1>/g;
    my @sorted = sort { length $a <=> length $b or $a cmp $b } @all;
    delete $tree{$_} for grep { /[0-7]/ } keys %tree;
    return md5_hex($text . $copy . join("|", @sorted)) . " $count " . scalar(keys %tree);
}

print "plain ", work(1), "\n";

if (eval { require threads; 1 }) {
    my @threads = map { my $n = $_; threads->create(sub { return work($n) }) } 10 .. 15;
    print "thread ", $_->join, "\n" for @threads;
} else {
    print "this perl has no threads\n";
}

for my $n (20 .. 25) {
    pipe(my $read, my $write) or die "pipe: $!";
    my $pid = fork // die "fork: $!";
    if (!$pid) { close $read; print $write work($n); close $write; exit $n; }
    close $write;
    my $answer = <$read>;
    waitpid $pid, 0;
    print "child $answer ", $? >> 8, "\n";
}

my $long = "";
$long .= "abcdefghij" x 100 for 1 .. 5000;
$long = reverse $long;
print "long ", length $long, " ", md5_hex($long), "\n";
local $/;
open(my $self, "<", $0) or die "open: $!";
my $source = <$self>;
print "evals ", scalar(grep { eval "$_ * 2" == $_ * 2 } 1 .. 2000), " ", length $source, "\n";
