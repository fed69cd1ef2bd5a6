//! Requests that together use columns of every width and alignment, in kernels and in the interpreter. The fuzz target
//! `scan_page` uses these requests, too.

use cellar_format::postgres::{Align, Collation, Width, encoding, type_oid};
use cellar_format::wire::{
    Aggregate, Aggregation, Attribute, Expr, Missing, Relation, ScanMode, ScanRequest, Snapshot, SortKey, TopN,
};

fn attributes() -> Vec<Attribute> {
    let attribute = |type_oid, width, align| Attribute {
        type_oid,
        typmod: -1,
        width,
        align,
        by_value: false,
        missing: Missing::Null,
    };
    vec![
        attribute(type_oid::INT4, Width::Fixed(4), Align::Int),
        attribute(type_oid::TEXT, Width::Varlena, Align::Int),
        attribute(type_oid::NUMERIC, Width::Varlena, Align::Int),
        attribute(type_oid::FLOAT8, Width::Fixed(8), Align::Double),
        attribute(0, Width::Cstring, Align::Char),
        attribute(type_oid::NAME, Width::Fixed(64), Align::Char),
        attribute(type_oid::TIMESTAMP, Width::Fixed(8), Align::Double),
        attribute(type_oid::DATE, Width::Fixed(4), Align::Int),
    ]
}

fn call(function: u32, args: Vec<Expr>) -> Expr {
    Expr::Call { function, collation: Collation::Bytewise, args }
}

fn constant(type_oid: u32, bytes: &[u8]) -> Expr {
    Expr::Const { type_oid, value: Some(bytes.to_vec()) }
}

/// Aggregations with all kinds of states, and with no keys or keys of several types.
fn aggregations() -> Vec<Aggregation> {
    let aggregate = |function, column: Option<u16>, filter| Aggregate {
        function,
        collation: Collation::Bytewise,
        argument: column.map(Expr::Column),
        filter,
    };
    let filter = || call(66, vec![Expr::Column(1), constant(type_oid::INT4, &[9, 0, 0, 0])]);
    let aggregates = vec![
        aggregate(2803, None, Some(filter())),
        aggregate(2147, Some(5), None),
        aggregate(2108, Some(1), None),
        aggregate(2101, Some(1), Some(filter())),
        aggregate(2116, Some(1), None),
        aggregate(2145, Some(2), None),
        aggregate(2114, Some(3), None),
        aggregate(2146, Some(3), None),
        aggregate(2105, Some(4), None),
        aggregate(2111, Some(4), None),
        aggregate(2120, Some(4), None),
        aggregate(2126, Some(7), None),
        Aggregate {
            argument: Some(call(1726, vec![Expr::Column(3), call(1740, vec![Expr::Column(1)])])),
            ..aggregate(2103, None, None)
        },
    ];
    [vec![], vec![2, 6, 8], vec![1, 7]]
        .map(|keys| Aggregation {
            keys: keys.into_iter().map(Expr::Column).collect(),
            aggregates: aggregates.clone(),
            ..Aggregation::default()
        })
        .to_vec()
}

pub fn requests() -> Vec<ScanRequest> {
    let quals = vec![
        vec![],
        vec![call(66, vec![Expr::Column(1), constant(type_oid::INT4, &[9, 0, 0, 0])])],
        vec![call(850, vec![Expr::Column(2), constant(type_oid::TEXT, b"%a%b_")])],
        vec![call(
            1722,
            vec![
                call(1726, vec![Expr::Column(3), call(1724, vec![Expr::Column(3), Expr::Column(3)])]),
                constant(type_oid::NUMERIC, &[0, 0x81, 1, 0]),
            ],
        )],
        vec![Expr::Or(vec![
            call(295, vec![Expr::Column(4), constant(type_oid::FLOAT8, &1.5f64.to_le_bytes())]),
            Expr::IsNull(Box::new(Expr::Column(5))),
            call(1086, vec![call(2029, vec![Expr::Column(7)]), Expr::Column(8)]),
        ])],
        vec![
            call(656, vec![Expr::Column(6), constant(type_oid::NAME, &[b'a'; 64])]),
            call(
                1722,
                vec![
                    call(6202, vec![constant(type_oid::TEXT, b"epoch"), Expr::Column(7)]),
                    call(1743, vec![call(1746, vec![Expr::Column(3)])]),
                ],
            ),
        ],
    ];
    let projections: [(ScanMode, Vec<u16>); 4] = [
        (ScanMode::Columns, vec![]),
        (ScanMode::Columns, (1..=8).collect()),
        (ScanMode::Columns, vec![2, 5]),
        (ScanMode::Rows, vec![]),
    ];
    let mut requests = Vec::new();
    for quals in &quals {
        for (mode, projection) in &projections {
            requests.push(ScanRequest {
                relation: Relation {
                    file: "f".into(),
                    segment_blocks: 131_072,
                    checksums: false,
                    encoding: encoding::UTF8,
                    attributes: attributes(),
                },
                quals: quals.clone(),
                projection: projection.clone(),
                mode: *mode,
                snapshot: Snapshot { xmin: 1000, xmax: 2000, taken_during_recovery: false, next_full_xid: 2000 },
                threads: 1,
                aggregation: None,
                lookups: Vec::new(),
                top_n: None,
                index: None,
            });
        }
    }
    for (index, aggregation) in aggregations().into_iter().enumerate() {
        for quals in [0, 2 + index] {
            let mut request = requests[quals * projections.len() + index].clone();
            request.aggregation = Some(aggregation.clone());
            requests.push(request);
        }
    }
    for (index, (column, less)) in [(1, 66), (2, 740), (3, 1722), (4, 295), (8, 1087)].into_iter().enumerate() {
        let mut request = requests[index * projections.len() % 20 + 1 + index % 3].clone();
        let key = |column, less| SortKey {
            expr: Expr::Column(column),
            less,
            collation: Collation::Bytewise,
            descending: index % 2 == 0,
            nulls_first: index % 3 == 0,
        };
        request.top_n = Some(TopN { rows: 1 + 7 * index as u32, keys: vec![key(column, less), key(1, 66)] });
        requests.push(request);
    }
    requests
}
